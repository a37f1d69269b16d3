//! See [`headstart_fuzz::composed`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(composed);
