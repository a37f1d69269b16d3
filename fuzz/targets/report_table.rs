//! See [`headstart_fuzz::report_table`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(report_table);
