//! See [`headstart_fuzz::virtual_disk`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(virtual_disk);
