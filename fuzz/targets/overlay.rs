//! See [`headstart_fuzz::overlay`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(overlay);
