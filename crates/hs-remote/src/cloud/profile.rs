//! The files of the AWS command line: `~/.aws/credentials` and `~/.aws/config`. "Configuration and credential
//! file settings", AWS Command Line Interface User Guide.

use std::path::Path;

/// What a profile sets.
#[derive(Default)]
pub(super) struct Profile(Vec<(String, String)>);

impl Profile {
    /// Reads the profile `name` from those of the files that exist; the first file takes precedence.
    pub(super) fn read(credentials: Option<&Path>, config: Option<&Path>, name: &str) -> Self {
        let text = |path: Option<&Path>| std::fs::read_to_string(path?).ok();
        let mut profile = Self::default();
        if let Some(text) = text(credentials) {
            profile.add(&text, name);
        }
        if let Some(text) = text(config) {
            // In that file, every profile except the default has this prefix.
            let section = if name == "default" { name.to_owned() } else { format!("profile {name}") };
            profile.add(&text, &section);
        }
        profile
    }

    fn add(&mut self, text: &str, section: &str) {
        let mut is_ours = false;
        for line in text.lines() {
            // An indented line belongs to a setting of several lines; we read none of those.
            let is_part = line.starts_with([' ', '\t']);
            let line = line.trim();
            if line.starts_with(['#', ';']) || is_part {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                is_ours = name.split_whitespace().eq(section.split_whitespace());
            } else if let Some((key, value)) = line.split_once('=').filter(|_| is_ours) {
                self.0.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_their_order() {
        let mut profile = Profile::default();
        profile.add(
            "[other]\nregion=x\n[ default ]\n# c\nAWS_access_key_id = a \ns3 =\n  region = y\n",
            "default",
        );
        profile.add("[default]\nregion = z\naws_access_key_id = b\n", "default");
        assert_eq!(profile.get("aws_access_key_id"), Some("a"));
        assert_eq!(profile.get("region"), Some("z"));
        let mut named = Profile::default();
        named.add("[profile p]\nregion=q\n[profile pp]\nregion=r\n", "profile p");
        assert_eq!((named.get("region"), named.0.len()), (Some("q"), 1));
    }

    #[test]
    fn the_first_file_that_sets_something_counts_and_any_may_be_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let credentials = write("credentials", "[default]\nregion=a\n[p]\nregion=b\n");
        let config = write("config", "[default]\nregion=c\ns3=d\n[profile p]\nregion=e\ns3=f\n[p]\ns3=g\n");
        let none = folder.path().join("none");
        for (files, name, region, s3) in [
            ((&credentials, &config), "default", Some("a"), Some("d")),
            ((&credentials, &config), "p", Some("b"), Some("f")),
            ((&none, &config), "p", Some("e"), Some("f")),
            ((&credentials, &none), "p", Some("b"), None),
            ((&none, &none), "p", None, None),
        ] {
            let profile = Profile::read(Some(files.0), Some(files.1), name);
            assert_eq!((profile.get("region"), profile.get("s3")), (region, s3), "{name} of {files:?}");
        }
        assert_eq!(Profile::read(None, Some(&config), "default").get("region"), Some("c"));
    }
}
