//! See [`headstart_fuzz::report_json`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(report_json);
