//! What a registry requires that answers 401.

use http_auth::{ChallengeParser, ChallengeRef};

/// The most challenges of one answer that are tried.
const MOST_CHALLENGES: usize = 4;

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
    /// The challenges of the `WWW-Authenticate` fields of an answer, the best first: with tokens the password
    /// goes to fewer servers. What cannot be understood, of a field from there on, is left out.
    pub(super) fn all<'a>(fields: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        let parsed = fields.into_iter().flat_map(|field| ChallengeParser::new(field).map_while(Result::ok));
        let mut known: Vec<_> = parsed.filter_map(|challenge| Self::known(&challenge)).collect();
        // Stable: of two token servers the first counts.
        known.sort_by_key(|challenge| *challenge == Self::Basic);
        known.dedup();
        known.truncate(MOST_CHALLENGES);
        known
    }

    fn known(challenge: &ChallengeRef<'_>) -> Option<Self> {
        if challenge.scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        let value = |name: &str| {
            let found = challenge.params.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_unescaped())
        };
        if !challenge.scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        Some(Self::Bearer { realm: value("realm")?, service: value("service"), scope: value("scope") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str) -> Challenge {
        Challenge::Bearer { realm: realm.to_owned(), service: None, scope: None }
    }

    #[test]
    fn challenges_of_known_registries() {
        let docker = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/x:pull""#;
        assert_eq!(
            Challenge::all([docker]),
            [Challenge::Bearer {
                realm: "https://auth.docker.io/token".to_owned(),
                service: Some("registry.docker.io".to_owned()),
                scope: Some("repository:library/x:pull".to_owned()),
            }]
        );
        assert_eq!(Challenge::all([r#"Basic realm="Registry Realm""#]), [Challenge::Basic]);
        for nothing in ["", "Negotiate", "Digest realm=\"x\"", "Bearer service=\"x\"", "Basic realm=\"x"] {
            assert_eq!(Challenge::all([nothing]), [], "{nothing}");
        }
    }

    #[test]
    fn all_that_is_offered_is_found_tokens_first() {
        let (basic, token) = (r#"Basic realm="x""#, r#"Bearer realm="https://h/t""#);
        let both = [bearer("https://h/t"), Challenge::Basic];
        for fields in [
            vec![basic, token],
            vec![token, basic],
            vec!["Basic realm=\"x\", Bearer realm=\"https://h/t\""],
            vec!["bearer REALM=\"https://h/t\",basic realm=x"],
            vec!["Negotiate", basic, "Digest realm=\"y\", nonce=\"1\"", token, basic],
            // Nonsense hides nothing in other fields, and nothing before it.
            vec!["Negotiate YII==", "Basic realm=\"x\", Bearer realm=\"https://h/t\", Other x=\"", "\u{e4}"],
        ] {
            assert_eq!(Challenge::all(fields.iter().copied()), both, "{fields:?}");
        }
        let many = (0..9).map(|number| format!("Bearer realm=\"https://h/{number}\"")).collect::<Vec<_>>();
        assert_eq!(Challenge::all(many.iter().map(String::as_str)).len(), MOST_CHALLENGES);
    }
}
