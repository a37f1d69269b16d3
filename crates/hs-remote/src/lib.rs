//! Images that lie elsewhere: on a web server, in a registry, in an object store.
//!
//! An [`Address`] says where. Reading goes through one [`Store`](hs_store::Store), [`http::HttpStore`]; what
//! differs is how the address and the credentials for its requests are found ([`http::Locate`]). Sending an
//! image differs: [`registry::push`](registry::push()) and [`cloud::push`].
//!
//! | part | what it does |
//! | --- | --- |
//! | [`http::HttpStore`] | reads a file on a web server, by ranges |
//! | [`registry::RegistryImage`] | finds the blob of a registry for `HttpStore` |
//! | [`cloud::CloudObject`] | finds the object of a cloud for `HttpStore` |
//! | [`Keyring`] | has the credentials and settings of the environment |

#![forbid(unsafe_code)]

mod address;
pub mod cloud;
pub mod http;
mod keyring;
mod push;
pub mod registry;
mod sha256;
mod unfinished;

pub use address::{Address, docker_address};
pub use keyring::Keyring;
pub use push::{Abandoned, PushError, Pushed, Pushing};
pub use sha256::Sha256;
pub use unfinished::{LeftUpload, left_uploads};
