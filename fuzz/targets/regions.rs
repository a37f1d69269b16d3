//! See [`headstart_fuzz::regions`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(regions);
