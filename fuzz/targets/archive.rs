//! See [`headstart_fuzz::archive`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(archive);
