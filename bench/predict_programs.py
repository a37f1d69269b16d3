#!/usr/bin/env python3
"""What `headstart lab predict` says of programs with which it was not made: starts of git, g++, ruby, node, a JVM and PostgreSQL up to
its first query, each in a Debian root of its own.

Starts from memory are measured in turns with those from media, one for each layout. A prediction gets the median of its layout as
`--own-time`. Of an unoptimised start it is compared with that median and the time for which the measured starts waited for the medium
(`demand_wait_s`). An optimised start waits for pages that the warmer has asked for as well, and no figure has that time: it is compared
with what the measured starts took altogether.
"""

import statistics

from harness import FLAT, alternate, arguments, figure, finish, headstart, headstart_json, run, spread_of, start
from inputs import READY, image, kept, optimized, program, remove

MEDIA = [*FLAT, "cd-24x-cav"]
LAYOUTS = ["unoptimised", "optimised"]
# How far a prediction may be off.
GOAL = 0.05

NODE = """
const http = require("http"), crypto = require("crypto"), zlib = require("zlib"), {Worker} = require("worker_threads");
const server = http.createServer((_, answer) => answer.end(zlib.gzipSync(crypto.randomBytes(1000))));
server.listen("/tmp/socket", () => http.get({socketPath: "/tmp/socket"}, answer => {
  answer.resume();
  answer.on("end", () => { console.log("ready"); process.exit(0); });
}));
"""

JAVA = """
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.logging.Logger;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

public class Begin {
    public static void main(String[] arguments) throws Exception {
        var threads = Executors.newFixedThreadPool(2);
        Future<String> text = threads.submit(() -> IntStream.range(0, 1000).mapToObj(Integer::toString)
            .filter(Pattern.compile("[13579]$").asPredicate()).collect(Collectors.joining(",")));
        var client = HttpClient.newHttpClient();
        var request = HttpRequest.newBuilder(URI.create("https://localhost/")).build();
        Logger.getLogger("begin").fine(() -> client + " " + request);
        var digest = java.security.MessageDigest.getInstance("SHA-256").digest(text.get().getBytes("UTF-8"));
        System.out.println("ready " + DateTimeFormatter.RFC_1123_DATE_TIME.format(ZonedDateTime.now()) + " " + digest.length);
        System.exit(0);
    }
}
"""

# The server says by a line when it takes connections: nothing here asks it again and again.
FIRST_QUERY = """#!/bin/sh
bin=$(echo /usr/lib/postgresql/*/bin)
mkfifo /tmp/log
"$bin/postgres" -D /srv/data -k /tmp -c listen_addresses= > /tmp/log 2>&1 &
while read -r line; do
  case $line in *"ready to accept connections"*) break ;; esac
done < /tmp/log
"$bin/psql" -h /tmp -d postgres -Atc "select 'ready ' || count(*) from pg_class"
kill -INT $!
"""


def root(name, packages, prepare=lambda root: None):
    """A minimal Debian root with these packages."""

    def make(draft):
        run("mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", "--quiet", f"--include={packages}", "bookworm",
            draft, patience_s=1200)
        remove(draft / "var/cache/apt")
        remove(draft / "var/lib/apt/lists")
        prepare(draft)

    return kept(f"{name}-root", [], make)


def add_class(root):
    """The class, as a jar."""
    source = root / "opt/begin/Begin.java"
    source.parent.mkdir(parents=True)
    source.write_text(JAVA)
    run("javac", "--release", "17", "-d", source.parent / "classes", source)
    run("jar", "--create", "--file", source.parent / "begin.jar", "--main-class", "Begin", "-C", source.parent / "classes", ".")


def add_data(root):
    """A data directory, and the script of the start."""
    (root / "opt/first-query").write_text(FIRST_QUERY)
    run("chroot", root, "sh", "-ec", "install -d -o postgres -g postgres -m 700 /srv/data; chmod 755 /opt/first-query; "
        "setpriv --reuid postgres --regid postgres --clear-groups /usr/lib/postgresql/*/bin/initdb -D /srv/data --locale C.UTF-8")


HELLO = """#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
int main() {
  std::map<std::string, std::vector<int>> found{{"ready", {2, 1}}};
  for (auto& [word, numbers] : found) { std::sort(numbers.begin(), numbers.end()); std::cout << word << " " << numbers[0] << "\\n"; }
}
"""

# What a program of a web service asks for first.
RUBY = """
require "json"; require "set"; require "net/http"; require "openssl"; require "erb"; require "csv"; require "logger"
puts "ready " + JSON.generate(ERB.new("<%= OpenSSL::Digest::SHA256.hexdigest('a')[0, 8] %>").result => Set[1, 2].to_a)
"""


def add_source(root):
    """A program to be compiled."""
    (root / "opt/hello.cc").write_text(HELLO)


def add_repository(root):
    """A repository with some hundred commits of the files in /usr/share/perl."""
    (root / "opt/make-repository").write_text("""
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
""")
    run("chroot", root, "sh", "-e", "/opt/make-repository")


PROGRAMS = {
    "git": (lambda: root("git", "git", add_repository),
            ["sh", "-ec", "cd /srv/repository; git status --short; git log --stat -20 >/dev/null; git grep -c sub | wc -l; "
             "git blame -s $(git ls-files | tail -1) | tail -1 >/dev/null; echo ready"]),
    "gcc": (lambda: root("gcc", "g++", add_source),
            ["sh", "-ec", "g++ -std=c++17 -O1 -o /tmp/hello /opt/hello.cc; /tmp/hello"]),
    "ruby": (lambda: root("ruby", "ruby"), ["ruby", "-e", RUBY]),
    "node": (lambda: root("node", "nodejs"), ["node", "-e", NODE]),
    "java": (lambda: root("java", "default-jre-headless", add_class), ["java", "-jar", "/opt/begin/begin.jar"]),
    "postgresql": (lambda: root("postgresql", "postgresql", add_data),
                   ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "/opt/first-query"]),
}


RECORDINGS = 3


def recordings(plain, name, command):
    """What programs that read something else each time need: several recordings (docs/START.md)."""

    def make(draft):
        headstart("profile", plain, "-o", draft, "--ready", READY, "--", *command)

    return [kept(f"{name}-{number}.hsp", [plain, program()], make) for number in range(RECORDINGS)]


class Program:
    """A program, its images and its recorded start."""

    def __init__(self, name):
        make, self.command = PROGRAMS[name]
        self.name = name
        plain = image(make(), name)
        profiles = recordings(plain, name, self.command)
        # The one that was ready soonest: what else the machine did then is a part of a recording.
        self.profile = min(profiles, key=lambda profile: headstart_json("inspect", profile, "--json")["ready_s"])
        self.images = {"unoptimised": plain, "optimised": optimized(plain, f"{name}-fast", *profiles)}

    def cases(self, media):
        """What is run in turns."""
        for layout in LAYOUTS:
            for medium in ["none", *media]:
                yield (self.name, layout, medium), lambda layout=layout, medium=medium: start(
                    self.images[layout], self.command, medium=medium, ready=READY)

    def predicted(self, layout, medium, own_time):
        """What `lab predict` says, with the program's own time as recorded without one."""
        own = ["--own-time", own_time] if own_time else []
        return headstart_json("lab", "predict", self.images[layout], "--profile", self.profile, *own, "--compare",
                              f"{medium},{layout}", "--json")["rows"][0]


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def compared(program, layout, medium, warm, cold):
    """One figure: a prediction against what was measured."""
    own = round(median(warm, "ready_s"), 4)
    predicted = program.predicted(layout, medium, own)
    parts = own + median(cold, "demand_wait_s")
    judge = (lambda run: run["ready_s"]) if layout == "optimised" else lambda run: own + run["demand_wait_s"]
    off = predicted["ready_s"] / statistics.median(map(judge, cold))
    detail = {
        "predicted_to_wait_and_warm": predicted["ready_s"] / parts,
        "predicted_to_measured": predicted["ready_s"] / median(cold, "ready_s"),
        "as_recorded_to_wait_and_warm": program.predicted(layout, medium, None)["ready_s"] / parts,
        "wait_and_warm_s": parts,
        "own_time_s": own,
        "predicted": predicted,
        "warm_s": spread_of(warm, "ready_s"),
        "warm_wait_s": spread_of(warm, "demand_wait_s"),
    }
    keys = ("ready_s", "demand_wait_s", "store_requests", "store_bytes", "seeks", "medium_busy_s", "demand_requests", "demand_bytes")
    detail |= {key: spread_of(cold, key) for key in keys}
    noise = [abs(predicted["ready_s"] / judge(run) - 1) for run in cold]
    return figure(f"{program.name}, {medium} {layout}: predicted is off by", abs(off - 1), at_most=GOAL,
                  noise=[min(noise), max(noise)], detail=detail)


def main():
    parser = arguments(__doc__, repeats=3)
    parser.add_argument("--program", action="append", choices=PROGRAMS)
    parser.add_argument("--medium", action="append", choices=MEDIA)
    args = parser.parse_args()
    media = args.medium or MEDIA
    programs = {name: Program(name) for name in args.program or PROGRAMS}
    cases = dict(case for program in programs.values() for case in program.cases(media))
    runs = alternate(cases, args.repeats, say=lambda run: f"{run['ready_s']:.2f} s, {run['store_requests']} requests")
    figures = [compared(programs[name], layout, medium, runs[name, layout, "none"], cold)
               for (name, layout, medium), cold in runs.items() if medium != "none"]
    finish("predict_programs", figures, args.repeats)


if __name__ == "__main__":
    main()
