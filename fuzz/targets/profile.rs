//! See [`headstart_fuzz::profile`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(profile);
