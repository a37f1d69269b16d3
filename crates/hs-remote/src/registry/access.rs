//! Requests to one repository, with authentication.

use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Method, RequestBuilder};
use serde::Deserialize;
use url::Url;

use super::RegistryAddress;
use super::address::is_loopback;
use super::challenge::Challenge;
use super::login::{Login, Logins};
use crate::http::{Answer, HttpClient, HttpError};

/// Registries whose tokens come from another host of their own.
const KNOWN_REALMS: [(&str, &str); 3] = [
    ("registry-1.docker.io", "auth.docker.io"),
    ("registry.gitlab.com", "gitlab.com"),
    ("docker.elastic.co", "docker-auth.elastic.co"),
];
/// The most characters of a server's message that are shown.
const MOST_SAID: usize = 200;

/// Rights to a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    Pull,
    Push,
    Delete,
}

impl Right {
    const fn actions(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Push => "pull,push",
            Self::Delete => "pull,push,delete",
        }
    }
}

/// Requests to one repository.
pub(super) struct Access {
    client: Arc<HttpClient>,
    address: RegistryAddress,
    logins: Logins,
    right: Right,
    proof: Mutex<Proof>,
}

/// The authentication that is sent.
#[derive(Default)]
struct Proof {
    challenge: Option<Challenge>,
    authorization: Option<HeaderValue>,
}

/// The answer of a token server: Docker's "Token Authentication", section "Token Response Fields".
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// Error codes of the distribution specification.
#[derive(Deserialize)]
struct Complaint {
    errors: Vec<CodedError>,
}

#[derive(Deserialize)]
struct CodedError {
    code: String,
    #[serde(default)]
    message: String,
}

impl Access {
    pub(super) fn new(
        client: Arc<HttpClient>,
        address: RegistryAddress,
        logins: Logins,
        right: Right,
    ) -> Self {
        Self { client, address, logins, right, proof: Mutex::default() }
    }

    pub(super) const fn address(&self) -> &RegistryAddress {
        &self.address
    }

    /// What makes the requests.
    pub(super) fn client(&self) -> &HttpClient {
        &self.client
    }

    /// Headers for the registry, as far as it has asked for them.
    pub(super) fn headers(&self) -> HeaderMap {
        let authorization = self.proof.lock().authorization.clone();
        authorization.into_iter().map(|value| (AUTHORIZATION, value)).collect()
    }

    /// Makes a request, and repeats it with authentication when the registry asks for that.
    pub(super) fn ask(
        &self,
        method: &Method,
        url: &Url,
        with: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Answer, HttpError> {
        let is_of_registry = |url: &Url| self.address.url("").is_ok_and(|ours| ours.origin() == url.origin());
        // Uploads may go to another host, which must not see the login.
        let is_ours = is_of_registry(url);
        let send = || {
            let asked = self.client.requests().request(method.clone(), url.clone());
            let headers = if is_ours { self.headers() } else { HeaderMap::new() };
            self.client.exchange(with(asked.headers(headers)))
        };
        let answer = send()?;
        // A redirect may have led to a host that asks for the registry's login: only the registry itself may.
        if answer.status != 401 || !is_of_registry(&answer.url) {
            return Ok(answer);
        }
        let fields = answer.headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|field| field.to_str().ok());
        let login = self.logins.find(&self.address.login_keys())?;
        let refused = || HttpError::Login { host: self.address.host.clone(), had_login: login.is_some() };
        let mut failed = None;
        for challenge in Challenge::all(fields) {
            // What a token server refuses is no help to a user who has no login at all.
            if challenge == Challenge::Basic
                && failed.is_some()
                && !matches!(login, Some(Login::Password { .. }))
            {
                failed = failed.filter(|error: &HttpError| login.is_some() || error.is_transient());
                continue;
            }
            match self.prove(challenge, login.clone()) {
                Ok(()) => {
                    let answer = send()?;
                    if answer.status != 401 {
                        return Ok(answer);
                    }
                    failed = Some(refused());
                }
                Err(error) => {
                    log::debug!("{}: {error}", self.address);
                    failed = Some(error);
                }
            }
        }
        Err(failed.unwrap_or_else(refused))
    }

    /// Sends this from the first request on: what the registry wanted of another process.
    pub(super) fn begin_with(&self, authorization: Option<HeaderValue>) {
        let authorization = authorization.map(|mut value| {
            value.set_sensitive(true);
            value
        });
        *self.proof.lock() = Proof { challenge: None, authorization };
    }

    /// Whether the registry has said what it wants.
    pub(super) fn has_challenge(&self) -> bool {
        self.proof.lock().challenge.is_some()
    }

    /// Authenticates again, if that was required before.
    pub(super) fn renew(&self) -> Result<(), HttpError> {
        let known = self.proof.lock().challenge.clone();
        let Some(challenge) = known else { return Ok(()) };
        self.prove(challenge, self.logins.find(&self.address.login_keys())?)
    }

    /// Answers a challenge.
    fn prove(&self, challenge: Challenge, login: Option<Login>) -> Result<(), HttpError> {
        let had_login = login.is_some();
        let host = || self.address.host.clone();
        if had_login && !self.address.keeps_secrets() {
            return Err(HttpError::OpenLogin { host: host() });
        }
        let authorization = match (&challenge, login) {
            (Challenge::Basic, Some(Login::Password { user, password })) => {
                basic(self.client.requests(), &user, &password)
            }
            (Challenge::Basic, _) => None,
            (Challenge::Bearer { realm, service, scope }, login) => {
                let token = self.token(realm, service.as_deref(), scope.as_deref(), login)?;
                HeaderValue::from_str(&format!("Bearer {token}")).ok()
            }
        };
        let mut authorization = authorization.ok_or_else(|| HttpError::Login { host: host(), had_login })?;
        authorization.set_sensitive(true);
        *self.proof.lock() = Proof { challenge: Some(challenge), authorization: Some(authorization) };
        Ok(())
    }

    /// A token for this repository.
    fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
        login: Option<Login>,
    ) -> Result<String, HttpError> {
        let nonsense = |reason: &str| HttpError::Nonsense { reason: reason.to_owned() };
        let mut url = Url::parse(realm).map_err(|_| nonsense("who gives tokens has no address"))?;
        if !self.address.plain && url.scheme() != "https" {
            return Err(nonsense("it has tokens given over plain HTTP"));
        }
        if login.is_some() {
            self.check_realm(&url)?;
        }
        let place = url[url::Position::BeforeHost..url::Position::AfterPort].to_owned();
        let actions = self.right.actions();
        let ours = format!("repository:{}:{actions}", self.address.repository);
        // For reading, the scope that the registry names; it does not know yet that we want to write.
        let scope = scope.filter(|_| self.right == Right::Pull).unwrap_or(&ours);
        let had_login = login.is_some();
        let requests = if had_login { self.client.unredirected() } else { self.client.requests() };
        let asked = if let Some(Login::Identity(identity)) = login {
            let pairs = [
                ("grant_type", "refresh_token"),
                ("client_id", "headstart"),
                ("scope", scope),
                ("service", service.unwrap_or_default()),
                ("refresh_token", &identity),
            ];
            let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
            let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
            requests.post(url).header(reqwest::header::CONTENT_TYPE, kind).body(form)
        } else {
            url.query_pairs_mut().append_pair("scope", scope);
            if let Some(service) = service {
                url.query_pairs_mut().append_pair("service", service);
            }
            match login {
                Some(Login::Password { user, password }) => {
                    requests.get(url).basic_auth(user, Some(password))
                }
                _ => requests.get(url),
            }
        };
        let answer = self.client.exchange(asked).map_err(|error| of_token_server(&place, error))?;
        match answer.status {
            200 => {}
            400 | 401 | 403 => return Err(HttpError::Login { host: self.address.host.clone(), had_login }),
            _ => return Err(refused("a token", &answer)),
        }
        let token: Token =
            serde_json::from_slice(&answer.body).map_err(|_| nonsense("what should be a token is none"))?;
        token.token.or(token.access_token).ok_or_else(|| nonsense("an answer without a token"))
    }
}

impl Access {
    /// Whether a login of the registry may be sent to a token server: to the registry's own host, one below
    /// it, one that is known to belong to it, or one that the user names; over plain HTTP only on this
    /// machine.
    fn check_realm(&self, realm: &Url) -> Result<(), HttpError> {
        let (host, theirs) = (self.address.host.clone(), realm.host_str().unwrap_or_default().to_owned());
        if realm.scheme() != "https" && !is_loopback(realm) {
            return Err(HttpError::OpenLogin { host: theirs });
        }
        let ours = self.address.url("")?;
        let ours = ours.host_str().unwrap_or_default();
        let is_below = theirs.strip_suffix(ours).is_some_and(|rest| rest.ends_with('.'));
        let is_known = KNOWN_REALMS.contains(&(ours, &theirs));
        if theirs == ours || is_below || is_known || self.logins.allows(ours, &theirs) {
            return Ok(());
        }
        Err(HttpError::ForeignLogin { host, realm: theirs })
    }
}

/// Says that it is the token server which is away: the user knows of the registry alone.
fn of_token_server(place: &str, error: HttpError) -> HttpError {
    match error {
        HttpError::Connection { reason, permanent } => {
            HttpError::Connection { reason: format!("its token server {place}: {reason}"), permanent }
        }
        error => error,
    }
}

fn basic(requests: &reqwest::Client, user: &str, password: &str) -> Option<HeaderValue> {
    let request = requests.get("http://localhost/").basic_auth(user, Some(password)).build().ok()?;
    request.headers().get(AUTHORIZATION).cloned()
}

/// The error for an answer of an unwanted status.
pub(super) fn refused(what: &'static str, answer: &Answer) -> HttpError {
    let said = serde_json::from_slice::<Complaint>(&answer.body).ok().and_then(|complaint| {
        let first = complaint.errors.into_iter().next()?;
        let text = format!("{} {}", first.code, first.message);
        Some(text.chars().filter(|letter| !letter.is_control()).take(MOST_SAID).collect::<String>())
    });
    HttpError::Refused { what, status: answer.status, said: said.unwrap_or_default().trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Timeouts;

    #[test]
    fn a_login_goes_to_the_registry_and_what_belongs_to_it_and_never_in_the_clear() {
        let address = RegistryAddress::parse("oci://example.org/a:t").expect("an address");
        let client = HttpClient::new(Timeouts::default()).expect("a client");
        let access = Access::new(client, address, Logins::default(), Right::Pull);
        let check = |realm: &str| access.check_realm(&Url::parse(realm).expect("an address"));
        for realm in ["https://example.org/token", "https://auth.example.org/"] {
            assert!(check(realm).is_ok(), "{realm}");
        }
        for realm in ["https://example.com/", "https://badexample.org/", "https://auth.docker.io/token"] {
            assert!(matches!(check(realm), Err(HttpError::ForeignLogin { .. })), "{realm}");
        }
        for realm in ["http://example.org/", "http://auth.example.org/"] {
            assert!(matches!(check(realm), Err(HttpError::OpenLogin { .. })), "{realm}");
        }
    }
}
