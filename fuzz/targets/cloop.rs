//! See [`headstart_fuzz::cloop`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(cloop);
