//! Types in TypeScript that are made from types in Rust.

use std::path::Path;

/// Set to write the files anew.
const WRITE: &str = "HEADSTART_WRITE_TYPES";

/// Declares these types in TypeScript, with their documentation.
#[macro_export]
macro_rules! typescript {
    ($($each:ty),* $(,)?) => {{
        use $crate::ts_rs::TS as _;
        let config = $crate::ts_rs::Config::default();
        let mut text = ::std::string::String::new();
        $(
            text.push('\n');
            if let Some(docs) = <$each>::docs() {
                text.push_str(&docs);
            }
            text.push_str(&format!("export {}\n", <$each>::decl(&config)));
        )*
        text
    }};
}

/// Compares `file` of the page with declarations that were made from `source`; writes it first when
/// `HEADSTART_WRITE_TYPES` is set. Both are named from the root of the repository.
///
/// # Panics
/// When they differ.
pub fn check_typescript(file: &str, source: &str, declarations: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = format!("// Made from {source} by its test, which compares.\n{declarations}");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &text).expect("the types can be written");
    }
    let found = std::fs::read_to_string(&path).expect(file);
    assert!(found == text, "{file} is old: this test writes it with {WRITE}=1");
}
