//! SPDX licence expressions, as far as crates use them.
//!
//! The grammar is that of the SPDX specification 2.3, annex D: `WITH` binds closest, then `AND`,
//! then `OR`. Old manifests write `/` for `OR`.

/// True if the expression can be satisfied by licences that `is_allowed` accepts. `is_allowed` gets
/// one licence with its exception, such as `Apache-2.0 WITH LLVM-exception`. An expression that
/// cannot be read is not satisfied.
pub(crate) fn is_satisfied(expression: &str, is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, at: 0, is_allowed };
    let satisfied = parser.either();
    satisfied == Some(true) && parser.at == words.len()
}

struct Parser<'a> {
    words: &'a [&'a str],
    at: usize,
    is_allowed: &'a dyn Fn(&str) -> bool,
}

impl Parser<'_> {
    fn takes(&mut self, word: &str) -> bool {
        let found = self.words.get(self.at).is_some_and(|next| next.eq_ignore_ascii_case(word));
        self.at += usize::from(found);
        found
    }

    fn either(&mut self) -> Option<bool> {
        let mut satisfied = self.all()?;
        while self.takes("OR") {
            satisfied |= self.all()?;
        }
        Some(satisfied)
    }

    fn all(&mut self) -> Option<bool> {
        let mut satisfied = self.one()?;
        while self.takes("AND") {
            satisfied &= self.one()?;
        }
        Some(satisfied)
    }

    fn one(&mut self) -> Option<bool> {
        if self.takes("(") {
            let inner = self.either()?;
            return self.takes(")").then_some(inner);
        }
        let mut licence = (*self.words.get(self.at)?).to_string();
        self.at += 1;
        if self.takes("WITH") {
            licence = format!("{licence} WITH {}", self.words.get(self.at)?);
            self.at += 1;
        }
        Some((self.is_allowed)(&licence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn satisfied(expression: &str) -> bool {
        is_satisfied(expression, &|licence| {
            ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].contains(&licence)
        })
    }

    #[test]
    fn expressions_are_judged_as_specified() {
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/GPL-2.0",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-2.0 AND BSD-4-Clause OR MIT",
        ] {
            assert!(satisfied(good), "{good}");
        }
        for bad in [
            "GPL-3.0-only",
            "MIT AND GPL-2.0",
            "MIT WITH Font-exception-2.0",
            "(MIT",
            "MIT)",
            "MIT OR",
            "",
            "OR",
        ] {
            assert!(!satisfied(bad), "{bad}");
        }
    }
}
