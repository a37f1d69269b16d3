//! See [`headstart_fuzz::pointer`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(pointer);
