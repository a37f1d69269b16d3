//! See [`headstart_fuzz::iso_files`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(iso_files);
