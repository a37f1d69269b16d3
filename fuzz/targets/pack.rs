//! See [`headstart_fuzz::pack`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(pack);
