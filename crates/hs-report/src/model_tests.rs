//! The page is written in TypeScript, by types that are made from the model.

use hs_testing::{check_typescript, typescript};

use crate::{column, model};

#[test]
fn the_types_of_the_page_are_those_of_the_model() {
    let declarations = typescript!(
        model::Report,
        model::Story,
        model::Bar,
        model::Disk,
        model::Runs,
        model::HotRegion,
        model::Files,
        model::InputKind,
        model::Input,
        model::Stage,
        model::StageFiles,
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
    check_typescript("report-ui/src/model.ts", "crates/hs-report/src/model.rs", &declarations);
}
