//! See [`headstart_fuzz::superblock`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(superblock);
