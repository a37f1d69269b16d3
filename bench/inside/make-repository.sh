# A repository with some hundred commits of the files in /usr/share/perl.
git init -q -b main /srv/repository
cd /srv/repository
git config user.name bench
git config user.email bench@example.org
find /usr/share/perl /usr/share/perl5 -name '*.p[ml]' | head -600 | split -l 5 - /tmp/part-
for part in /tmp/part-*; do
  cp --parents $(cat $part) .
  git add .
  git commit -q -m "$part"
done
git gc -q
rm /tmp/part-*
