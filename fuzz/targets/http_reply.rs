//! See [`headstart_fuzz::http_reply`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(http_reply);
