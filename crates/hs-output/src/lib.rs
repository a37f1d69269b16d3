//! What the program gives out: lines, tables and progress on a terminal ([`show`]), messages
//! ([`log_output`]), plain ones ([`plain_words`]),
//! text that is harmless for terminals ([`printable`]), whole files ([`whole_file`]), the built page of
//! reports ([`report_page`]), what is installed with it ([`installed`]), and the program's own folders
//! ([`own_folders`]).

pub mod installed;
pub mod log_output;
pub mod own_folders;
pub mod plain_words;
pub mod printable;
pub mod report_page;
pub mod show;
pub mod whole_file;
