//! See [`headstart_fuzz::model_file`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(model_file);
