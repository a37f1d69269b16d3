//! See [`headstart_fuzz::elf_needs`].
#![cfg_attr(feature = "libfuzzer", no_main)]

headstart_fuzz::target!(elf_needs);
