//! See [`headstart_fuzz::recording_line`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(recording_line);
