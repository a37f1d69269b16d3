//! See [`headstart_fuzz::manifest`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(manifest);
