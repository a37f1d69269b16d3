//! See [`headstart_fuzz::container`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(container);
