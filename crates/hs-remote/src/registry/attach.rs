//! Sending a file as the referrer of a manifest: distribution specification 1.1, "Pushing Manifests with
//! Subject".

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Method;

use super::access::{Access, Right, refused};
use super::address::RegistryAddress;
use super::login::Logins;
use super::manifest::{Descriptor, MANIFEST_TYPE, Manifest};
use super::push::{Artifact, Sending, SentBlob, send_manifest};
use super::referrers;
use crate::http::{HttpClient, HttpError};
use crate::sha256::Sha256;
use crate::{PushError, Pushed, Pushing};

/// What is sent as the referrer of a manifest.
#[derive(Clone, Debug)]
pub struct Attachment<'a> {
    /// The file. Its `name` is not used: annotations say what there is to say.
    pub artifact: Artifact<'a>,
    /// What the file is: [`IMAGE_TYPE`](super::IMAGE_TYPE), for instance.
    pub artifact_type: &'a str,
    /// What is said of it, where the list of referrers has it.
    pub annotations: BTreeMap<String, String>,
    /// The manifest that it refers to.
    pub subject: &'a Descriptor,
}

/// Has the registry remove the manifest that `address` names by its digest. False where it does not remove
/// any, as many registries are set up.
///
/// # Errors
/// [`PushError::Refused`].
pub fn remove(client: Arc<HttpClient>, address: &RegistryAddress, logins: Logins) -> Result<bool, PushError> {
    let access = Access::new(client, address.clone(), logins, Right::Delete);
    let removed = Sending::new(&access).try_often(|access| {
        let url = access.address().url(&format!("manifests/{}", access.address().reference()))?;
        let answer = access.ask(&Method::DELETE, &url, |asked| asked)?;
        match answer.status {
            200..=204 | 404 => Ok(true),
            401 | 403 | 405 | 501 => Ok(false),
            _ => Err(refused("to remove the manifest", &answer)),
        }
    });
    removed.map_err(|source| PushError::Refused { address: address.to_string(), source })
}

/// Sends a file and a manifest that refers to another one of the repository of `address`, whose tag or digest
/// is not used. First the file, then the manifest, then its entry in the list of referrers where the registry
/// does not keep that by itself. Sent again, the same has the same digest, and nothing changes.
///
/// # Errors
/// [`PushError`] when the file cannot be read, or the registry refuses.
pub fn attach(
    client: Arc<HttpClient>,
    address: &RegistryAddress,
    logins: Logins,
    attachment: Attachment<'_>,
    pushing: &mut Pushing<'_>,
) -> Result<Pushed, PushError> {
    let refused = |source| PushError::Refused { address: address.to_string(), source };
    let wrong =
        || HttpError::NotAnImage { reason: format!("{:?} is no SHA-256 digest", attachment.subject.digest) };
    let subject: Sha256 = attachment.subject.digest.parse().map_err(|()| refused(wrong()))?;
    let access = Access::new(client, address.clone(), logins, Right::Push);
    let mut sending = Sending::new(&access);
    let blob = sending.send_blobs(attachment.artifact, pushing)?;
    let Attachment { artifact, artifact_type, annotations, subject: named } = attachment;
    // Annotations of the subject are said where it lies.
    let named = Descriptor { annotations: BTreeMap::new(), artifact_type: None, ..named.clone() };
    let manifest = Manifest::of_blob(artifact_type, blob.digest, blob.size, &artifact.title(), annotations);
    let text = serde_json::to_vec(&manifest.with_subject(named)).expect("strings and numbers are JSON");
    let digest = Sha256::of(&text).to_string();
    let sent = sending.try_often(|access| send_manifest(access, &digest, MANIFEST_TYPE, &text));
    if !sent.map_err(refused)?.headers.contains_key("oci-subject") {
        referrers::list_by_tag(&mut sending, subject, &text).map_err(refused)?;
    }
    let SentBlob { sent_bytes, resumed_bytes, .. } = blob;
    Ok(Pushed { sent_bytes, resumed_bytes, digest: Some(digest) })
}
