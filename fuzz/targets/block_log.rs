//! See [`headstart_fuzz::block_log`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(block_log);
