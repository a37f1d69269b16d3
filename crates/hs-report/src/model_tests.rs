//! The page is written in TypeScript, by types that are made from the model.

use std::fmt::Write as _;
use std::path::Path;

use ts_rs::{Config, TS};

use crate::{column, model};

/// Set to write the types anew.
const WRITE: &str = "HEADSTART_WRITE_TYPES";

fn types() -> String {
    let mut text = "// Made from crates/hs-report/src/model.rs by its test, which compares.\n".to_owned();
    let config = Config::default();
    macro_rules! declare {
        ($($each:ty),* $(,)?) => {
            $(
                text.push('\n');
                if let Some(docs) = <$each>::docs() {
                    text.push_str(&docs);
                }
                let _ = writeln!(text, "export {}", <$each>::decl(&config));
            )*
        };
    }
    declare!(
        model::Report,
        model::Disk,
        model::Runs,
        model::HotRegion,
        model::Files,
        model::InputKind,
        model::Input,
        model::Stage,
        model::Life,
        model::CpuUse,
        model::Requests,
        model::RequestKind,
        model::Process,
        model::Experiment,
        model::Figure,
        model::FigureVerdict,
        column::Number,
        column::Column,
        column::Texts,
    );
    text
}

#[test]
fn the_types_of_the_page_are_those_of_the_model() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../report-ui/src/model.ts");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&file, types()).expect("the types can be written");
    }
    let found = std::fs::read_to_string(&file).expect("report-ui/src/model.ts is there");
    assert!(found == types(), "{} is old: {WRITE}=1 cargo test -p hs-report writes it", file.display());
}
