//! See [`headstart_fuzz::ext4`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(ext4);
