//! See [`headstart_fuzz::snapshot_filter`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(snapshot_filter);
