//! How the command of an image starts, where nothing else is said: kept in the image's tree, as a container's
//! image has it.

use serde::{Deserialize, Serialize};

/// Where it lies in the tree.
pub const START_CONFIG_PATH: &str = ".headstart/config.json";
/// The most bytes that it may have.
pub const MOST_START_CONFIG_BYTES: u64 = 1 << 20;

/// How the command starts: the part of a container's configuration that matters for that, in its words.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StartConfig {
    /// The program and arguments that arguments of a start are added to.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Arguments, or program and arguments where there is no entrypoint, of a start without any.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// The environment, as KEY=VALUE.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The user, or user and group after a colon: each a name or a number.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The working directory.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    /// The chain ID of the layers that the tree has been merged from (image specification 1.1, "Layer
    /// `ChainID`"): which container's image it is of.
    #[serde(
        rename = "ChainID",
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub chain_id: String,
}

impl StartConfig {
    /// Reads what [`StartConfig::encode`] writes. What a container's configuration has beside it is ignored.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// The JSON of it, the same for equal ones.
    ///
    /// # Panics
    /// Never: texts and lists of texts are JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("texts and lists of texts are JSON");
        json.push(b'\n');
        json
    }
}

/// Programs write `null` for what is empty.
fn null_is_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_containers_have_is_kept_and_the_rest_ignored() {
        let json = br#"{"Entrypoint":null,"Cmd":["sh","-c","echo"],"Env":["A=1"],"User":"7:8",
            "ExposedPorts":{"80/tcp":{}},"Labels":null,"WorkingDir":"/srv"}"#;
        let config = StartConfig::parse(json).unwrap();
        let expected = StartConfig {
            entrypoint: Vec::new(),
            cmd: vec!["sh".into(), "-c".into(), "echo".into()],
            env: vec!["A=1".into()],
            user: "7:8".into(),
            working_dir: "/srv".into(),
            chain_id: String::new(),
        };
        assert_eq!(config, expected);
        assert_eq!(StartConfig::parse(&config.encode()).unwrap(), config);
        assert_eq!(StartConfig::default().encode(), b"{}\n");
        assert!(StartConfig::parse(br#"{"Cmd":"sh"}"#).is_err());
    }
}
