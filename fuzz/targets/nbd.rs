//! See [`headstart_fuzz::nbd`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(nbd);
