//! See [`headstart_fuzz::volumes`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(volumes);
