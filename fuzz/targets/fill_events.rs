//! See [`headstart_fuzz::fill_events`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(fill_events);
