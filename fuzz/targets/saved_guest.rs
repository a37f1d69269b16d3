//! See [`headstart_fuzz::saved_guest`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(saved_guest);
