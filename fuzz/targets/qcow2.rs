//! See [`headstart_fuzz::qcow2`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(qcow2);
