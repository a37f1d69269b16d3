//! See [`headstart_fuzz::image_tables`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(image_tables);
