//! See [`headstart_fuzz::upload`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(upload);
