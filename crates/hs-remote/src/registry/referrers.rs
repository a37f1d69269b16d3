//! Manifests that refer to another one, their subject: distribution specification 1.1, "Listing Referrers"
//! and "Referrers Tag Schema".
//!
//! A registry that does not list referrers has a tag in place of the list, `sha256-<digits>`, whose index
//! each writer reads, extends and writes. No registry has to notice that two do so at once. So each manifest
//! has a tag of its own first, and a writer goes on until the index has all that are tagged so: the last one
//! to write sees the others' tags, and none is lost.

use reqwest::Method;
use reqwest::header::{ACCEPT, LINK};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use super::access::{Access, refused};
use super::manifest::{Descriptor, MANIFEST_TYPE, Manifest};
use super::push::{Sending, send_manifest};
use crate::http::{Answer, HttpError};
use crate::sha256::Sha256;

/// The type of a list of manifests.
pub(super) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
/// The most manifests of one type that are taken from a list.
const MOST_REFERRERS: usize = 1024;
/// The most pages of a list; each has at most 4 MiB.
const MOST_PAGES: usize = 64;
/// How often an index is written anew because others write it too.
const MOST_ROUNDS: usize = 16;
/// Manifests that others have tagged and did not list, of which one writer takes care.
const MOST_UNLISTED: usize = 64;
/// Digits of the manifest in the tag of one that refers to another.
const TAG_DIGITS: usize = 32;

/// A list of manifests. What is not understood stays as it is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    manifests: Vec<Value>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Default for Index {
    fn default() -> Self {
        let rest = [("schemaVersion", Value::from(2)), ("mediaType", Value::from(INDEX_TYPE))];
        Self {
            manifests: Vec::new(),
            rest: rest.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
        }
    }
}

impl Index {
    fn parse(bytes: &[u8]) -> Result<Self, HttpError> {
        let wrong = |error: serde_json::Error| HttpError::NotAnImage {
            reason: format!("what should list the manifests that refer to it is no such list: {error}"),
        };
        serde_json::from_slice(bytes).map_err(wrong)
    }

    /// Those of this type that are well-formed.
    fn of_type<'a>(&'a self, artifact_type: &'a str) -> impl Iterator<Item = Descriptor> + 'a {
        let well_formed = |value| Descriptor::deserialize(value).ok();
        self.manifests.iter().filter_map(well_formed).filter(move |found| {
            found.artifact_type.as_deref() == Some(artifact_type) && found.digest.parse::<Sha256>().is_ok()
        })
    }

    fn has(&self, digest: &str) -> bool {
        self.manifests.iter().any(|known| digest_of(known) == Some(digest))
    }
}

fn digest_of(entry: &Value) -> Option<&str> {
    entry.get("digest")?.as_str()
}

/// The tag in place of the list.
fn list_tag(subject: Sha256) -> String {
    subject.to_string().replace(':', "-")
}

/// The tag of a manifest that is to be listed.
fn own_tag(subject: Sha256, referrer: Sha256) -> String {
    let digits = referrer.to_string().split_off("sha256:".len());
    format!("{}.{}", list_tag(subject), &digits[..TAG_DIGITS])
}

/// The manifests of this type that refer to `subject`.
pub(super) fn list(
    access: &Access,
    subject: Sha256,
    artifact_type: &str,
) -> Result<Vec<Descriptor>, HttpError> {
    let host = &access.address().host;
    if access.client().lacks_lists(host) {
        return of_tag(access, subject, artifact_type);
    }
    let mut url = access.address().url(&format!("referrers/{subject}"))?;
    url.query_pairs_mut().append_pair("artifactType", artifact_type);
    let mut found = Vec::new();
    for page in 0..MOST_PAGES {
        let answer = access.ask(&Method::GET, &url, |asked| asked.header(ACCEPT, INDEX_TYPE))?;
        match answer.status {
            200 => {}
            // A registry without such lists does not know the address.
            400 | 404 | 405 | 501 if page == 0 => {
                let found = of_tag(access, subject, artifact_type)?;
                access.client().note_without_lists(host);
                return Ok(found);
            }
            _ => return Err(refused("the list of what refers to the image", &answer)),
        }
        found.extend(Index::parse(&answer.body)?.of_type(artifact_type).take(MOST_REFERRERS - found.len()));
        match next_page(&answer)? {
            Some(next) if found.len() < MOST_REFERRERS && next != url => url = next,
            _ => break,
        }
    }
    Ok(found)
}

/// Those that the tag in place of a list has.
fn of_tag(access: &Access, subject: Sha256, artifact_type: &str) -> Result<Vec<Descriptor>, HttpError> {
    let index = listed_by_tag(access, subject)?;
    let listed = index.iter().flat_map(|index| index.of_type(artifact_type));
    Ok(listed.take(MOST_REFERRERS).collect())
}

/// Where a list goes on: RFC 8288.
fn next_page(answer: &Answer) -> Result<Option<Url>, HttpError> {
    let nonsense = |reason: &str| HttpError::Nonsense { reason: reason.to_owned() };
    let fields = answer.headers.get_all(LINK).iter().filter_map(|field| field.to_str().ok());
    let next = fields.flat_map(|field| field.split(',')).find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        parameters.replace('"', "").split(';').any(|word| word.trim() == "rel=next").then_some(target)
    });
    let Some(target) = next else { return Ok(None) };
    let url = answer.url.join(target).map_err(|_| nonsense("a list that goes on at what is no address"))?;
    if url.origin() != answer.url.origin() {
        return Err(nonsense("a list that goes on at another server"));
    }
    Ok(Some(url))
}

/// The list that a tag stands for, if there is one.
fn listed_by_tag(access: &Access, subject: Sha256) -> Result<Option<Index>, HttpError> {
    let found = manifest(access, &list_tag(subject), INDEX_TYPE)?;
    found.as_deref().map(Index::parse).transpose()
}

/// A manifest, if the registry has it.
fn manifest(access: &Access, reference: &str, accepted: &str) -> Result<Option<Vec<u8>>, HttpError> {
    let url = access.address().url(&format!("manifests/{reference}"))?;
    let answer = access.ask(&Method::GET, &url, |asked| asked.header(ACCEPT, accepted))?;
    match answer.status {
        200 => Ok(Some(answer.body)),
        404 => Ok(None),
        _ => Err(refused("the manifest", &answer)),
    }
}

/// Lists the manifest `text`, which the registry has, where the registry itself does not.
pub(super) fn list_by_tag(sending: &mut Sending<'_>, subject: Sha256, text: &[u8]) -> Result<(), HttpError> {
    let digest = Sha256::of(text);
    let ours = Manifest::referrer(text, subject).expect("it was made to refer to the subject");
    let tag = own_tag(subject, digest);
    sending.try_often(|access| send_manifest(access, &tag, MANIFEST_TYPE, text))?;
    for _ in 0..MOST_ROUNDS {
        let mut index = sending.try_often(|access| listed_by_tag(access, subject))?.unwrap_or_default();
        let mut missing = sending.try_often(|access| unlisted(access, subject, &index))?;
        if !index.has(&ours.digest) && !missing.iter().any(|other| other.digest == ours.digest) {
            missing.push(ours.clone());
        }
        if missing.is_empty() {
            return Ok(());
        }
        let entries = missing.iter().map(|entry| serde_json::to_value(entry).expect("texts are JSON"));
        index.manifests.extend(entries);
        sending.try_often(|access| write_index(access, subject, &mut index))?;
    }
    Err(HttpError::Nonsense {
        reason: "the list of what refers to the image never has what was added".to_owned(),
    })
}

/// Writes the list. A registry refuses one with manifests that it does not have any more: these go.
fn write_index(access: &Access, subject: Sha256, index: &mut Index) -> Result<(), HttpError> {
    let tag = list_tag(subject);
    let send = |index: &Index| {
        let text = serde_json::to_vec(index).expect("it was JSON");
        send_manifest(access, &tag, INDEX_TYPE, &text)
    };
    match send(index) {
        Err(HttpError::Refused { status: 400 | 404, .. }) => {
            let mut kept = Vec::new();
            for entry in std::mem::take(&mut index.manifests) {
                let known = digest_of(&entry).and_then(|digest| digest.parse().ok());
                if known.is_some_and(|digest| exists(access, digest).unwrap_or(true)) {
                    kept.push(entry);
                }
            }
            index.manifests = kept;
            send(index).map(|_| ())
        }
        sent => sent.map(|_| ()),
    }
}

/// Whether the registry has a manifest.
pub(super) fn exists(access: &Access, digest: Sha256) -> Result<bool, HttpError> {
    let url = access.address().url(&format!("manifests/{digest}"))?;
    let accepted = [MANIFEST_TYPE, INDEX_TYPE].join(", ");
    let answer = access.ask(&Method::HEAD, &url, |asked| asked.header(ACCEPT, &accepted))?;
    Ok(answer.status != 404)
}

/// Manifests that are tagged to be listed, and are not in the list.
fn unlisted(access: &Access, subject: Sha256, index: &Index) -> Result<Vec<Descriptor>, HttpError> {
    #[derive(Deserialize)]
    struct Tags {
        tags: Option<Vec<String>>,
    }
    let mut url = access.address().url("tags/list")?;
    let prefix = format!("{}.", list_tag(subject));
    // Tags are listed in lexical order: ours are the first after this one.
    url.query_pairs_mut().append_pair("n", "1000").append_pair("last", &list_tag(subject));
    let answer = access.ask(&Method::GET, &url, |asked| asked)?;
    let Ok(Tags { tags: Some(tags) }) = serde_json::from_slice(&answer.body) else { return Ok(Vec::new()) };
    let is_listed = |digits: &str| {
        let digest = format!("sha256:{digits}");
        index.manifests.iter().filter_map(digest_of).any(|known| known.starts_with(&digest))
    };
    let ours = tags.iter().filter(|tag| {
        tag.strip_prefix(&prefix).is_some_and(|digits| digits.len() == TAG_DIGITS && !is_listed(digits))
    });
    let mut missing = Vec::new();
    for tag in ours.take(MOST_UNLISTED) {
        let found = manifest(access, tag, MANIFEST_TYPE)?;
        // What others have tagged so is no concern of ours unless it refers to the same manifest.
        missing.extend(found.and_then(|text| Manifest::referrer(&text, subject)));
    }
    Ok(missing)
}
