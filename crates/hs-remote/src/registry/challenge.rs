//! What a registry requires that answers 401.

use http_auth::ChallengeParser;

/// How to authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// User and password with each request: RFC 7617.
    Basic,
    /// A token, which `realm` gives with a login or anonymously: Docker's "Token Authentication".
    Bearer {
        /// The token server.
        realm: String,
        /// The service that the token is for.
        service: Option<String>,
        /// The scope; without one we send our own.
        scope: Option<String>,
    },
}

impl Challenge {
    /// The best challenge of a `WWW-Authenticate`: with tokens the password goes to fewer servers.
    pub(super) fn parse(field: &str) -> Option<Self> {
        let challenges = ChallengeParser::new(field).collect::<Result<Vec<_>, _>>().ok()?;
        let bearer = challenges.iter().find(|challenge| challenge.scheme.eq_ignore_ascii_case("bearer"));
        if let Some(bearer) = bearer {
            let value = |name: &str| {
                let found = bearer.params.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            return Some(Self::Bearer {
                realm: value("realm")?,
                service: value("service"),
                scope: value("scope"),
            });
        }
        challenges
            .iter()
            .any(|challenge| challenge.scheme.eq_ignore_ascii_case("basic"))
            .then_some(Self::Basic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_of_known_registries() {
        let docker = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/x:pull""#;
        assert_eq!(
            Challenge::parse(docker),
            Some(Challenge::Bearer {
                realm: "https://auth.docker.io/token".to_owned(),
                service: Some("registry.docker.io".to_owned()),
                scope: Some("repository:library/x:pull".to_owned()),
            })
        );
        assert_eq!(Challenge::parse(r#"Basic realm="Registry Realm""#), Some(Challenge::Basic));
        let both = r#"Basic realm="x", Bearer realm="https://h/t""#;
        assert!(matches!(Challenge::parse(both), Some(Challenge::Bearer { service: None, .. })));
        for nothing in ["", "Negotiate", "Digest realm=\"x\"", "Bearer service=\"x\"", "Basic realm=\"x"] {
            assert_eq!(Challenge::parse(nothing), None, "{nothing}");
        }
    }
}
