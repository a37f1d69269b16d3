//! containerd's filters, with which it looks for snapshots: `labels."containerd.io/x"==y,parent!="z"`.
//!
//! ```text
//! selectors := selector ("," selector)*
//! selector  := fieldpath (operator value)?
//! fieldpath := field ("." field)*
//! operator  := "==" | "!=" | "~="
//! value     := quoted | anything but white space and ","
//! ```
//!
//! The grammar is that of containerd's package `filters`.

use std::iter::Peekable;
use std::str::Chars;

use regex::Regex;

use crate::snapshots::{Kind, Snapshot};

/// The most characters of a filter.
const MOST_CHARACTERS: usize = 16 << 10;
/// The most bytes that a compiled expression takes.
const MOST_EXPRESSION_BYTES: usize = 1 << 20;

/// All selectors must match.
#[derive(Debug)]
pub struct Filter(Vec<Selector>);

#[derive(Debug)]
struct Selector {
    field: Vec<String>,
    test: Test,
}

#[derive(Debug)]
enum Test {
    Present,
    Equal(String),
    NotEqual(String),
    Matches(Regex),
}

impl Filter {
    /// Reads a filter; an empty one matches everything.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MOST_CHARACTERS {
            return Err(format!("a filter of {} bytes is too long", text.len()));
        }
        let mut selectors = Vec::new();
        let mut rest = text.chars().peekable();
        while rest.peek().is_some() {
            selectors.push(selector(&mut rest).map_err(|why| format!("filter {text:?}: {why}"))?);
            match rest.next() {
                None => break,
                Some(',') if rest.peek().is_some() => {}
                Some(_) => return Err(format!("filter {text:?}: a comma and a selector are expected")),
            }
        }
        Ok(Self(selectors))
    }

    /// Whether all of it is true of a snapshot.
    #[must_use]
    pub fn matches(&self, name: &str, snapshot: &Snapshot) -> bool {
        self.0.iter().all(|selector| selector.matches(name, snapshot))
    }
}

impl Selector {
    fn matches(&self, name: &str, snapshot: &Snapshot) -> bool {
        let value = value(&self.field, name, snapshot);
        match &self.test {
            Test::Present => value.is_some(),
            Test::Equal(wanted) => value == Some(wanted),
            Test::NotEqual(wanted) => value.unwrap_or_default() != wanted,
            Test::Matches(wanted) => wanted.is_match(value.unwrap_or_default()),
        }
    }
}

/// What a snapshot has at this path.
fn value<'a>(field: &[String], name: &'a str, snapshot: &'a Snapshot) -> Option<&'a str> {
    match field.split_first()? {
        (first, []) if first == "name" => Some(name),
        // containerd asks for the lowest layer by an empty parent.
        (first, []) if first == "parent" => Some(snapshot.parent.as_deref().unwrap_or_default()),
        (first, []) if first == "kind" => Some(match snapshot.kind {
            Kind::View => "view",
            Kind::Active => "active",
            Kind::Committed => "committed",
        }),
        (first, label) if first == "labels" && !label.is_empty() => {
            snapshot.labels.get(&label.join(".")).map(String::as_str)
        }
        _ => None,
    }
}

fn selector(rest: &mut Peekable<Chars<'_>>) -> Result<Selector, String> {
    let mut path = vec![field(rest)?];
    while rest.next_if_eq(&'.').is_some() {
        path.push(field(rest)?);
    }
    let test = match rest.peek() {
        None | Some(',') => Test::Present,
        Some(_) => {
            let operator: String = rest.next().into_iter().chain(rest.next()).collect();
            match operator.as_str() {
                "==" => Test::Equal(operand(rest, false)?),
                "!=" => Test::NotEqual(operand(rest, false)?),
                "~=" => Test::Matches(expression(&operand(rest, true)?)?),
                other => return Err(format!("{other:?} is no operator: ==, != and ~= are")),
            }
        }
    };
    Ok(Selector { field: path, test })
}

fn expression(text: &str) -> Result<Regex, String> {
    let built = regex::RegexBuilder::new(text).size_limit(MOST_EXPRESSION_BYTES).build();
    built.map_err(|error| format!("{text:?} is no regular expression: {error}"))
}

fn field(rest: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    match rest.peek().copied() {
        Some(quote @ ('"' | '\'')) => quoted(rest, quote),
        Some(first) if first.is_ascii_alphabetic() || first == '_' => {
            let mut name = String::new();
            while let Some(next) = rest.next_if(|next| next.is_ascii_alphanumeric() || *next == '_') {
                name.push(next);
            }
            Ok(name)
        }
        other => Err(format!("a field is expected where {other:?} is")),
    }
}

fn operand(rest: &mut Peekable<Chars<'_>>, allows_other_quotes: bool) -> Result<String, String> {
    match rest.peek().copied() {
        Some(quote @ '"') => quoted(rest, quote),
        Some(quote @ ('\'' | '/' | '|')) if allows_other_quotes => quoted(rest, quote),
        _ => {
            let mut value = String::new();
            while let Some(next) = rest.next_if(|next| !next.is_whitespace() && *next != ',') {
                value.push(next);
            }
            if value.is_empty() {
                Err("a value is expected behind the operator".to_owned())
            } else {
                Ok(value)
            }
        }
    }
}

/// A string of Go, as far as containerd writes such strings.
fn quoted(rest: &mut Peekable<Chars<'_>>, quote: char) -> Result<String, String> {
    let mut text = String::new();
    rest.next();
    loop {
        let next = rest.next().ok_or("a quotation has no end")?;
        if next == quote {
            return Ok(text);
        }
        if next != '\\' {
            text.push(next);
            continue;
        }
        let escaped = rest.next().ok_or("a quotation has no end")?;
        let digits = match escaped {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        text.push(match escaped {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'x' | 'u' | 'U' => {
                let code: String = rest.by_ref().take(digits).collect();
                let code = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                code.ok_or("an escape is no character")?
            }
            other if !other.is_alphanumeric() => other,
            other => return Err(format!("\\{other} is no escape")),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::{Content, Labels, Usage};

    fn snapshot() -> Snapshot {
        let labels = [("containerd.io/snapshot.ref", "sha256:ab"), ("plain", "a,b")];
        Snapshot {
            id: 1,
            parent: Some("k8s.io/1/sha256:cd".to_owned()),
            kind: Kind::Committed,
            content: Content::Files,
            created_ns: 0,
            updated_ns: 0,
            labels: labels
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into_iter()
                .collect::<Labels>(),
            usage: Usage::default(),
        }
    }

    #[test]
    fn what_containerd_asks_for_is_found() {
        for (text, matches) in [
            ("", true),
            (r#"labels."containerd.io/snapshot.ref"==sha256:ab,parent=="k8s.io/1/sha256:cd""#, true),
            (r#"labels."containerd.io/snapshot.ref"==sha256:ab,parent=="""#, false),
            (r#"labels."containerd.io/snapshot.ref"==sha256:ac"#, false),
            (r#"labels."containerd.io/snapshot.ref""#, true),
            ("labels.other", false),
            ("labels.other!=x", true),
            (r#"labels.plain=="a,b""#, true),
            ("kind==committed,name==n", true),
            ("kind!=committed", false),
            ("name~=^n$", true),
            (r"parent~=/^k8s\.io\//", true),
            ("size==0", false),
        ] {
            let filter = Filter::parse(text).expect(text);
            assert_eq!(filter.matches("n", &snapshot()), matches, "{text}");
        }
    }

    #[test]
    fn the_lowest_layer_is_found_by_an_empty_parent() {
        let lowest = Snapshot { parent: None, ..snapshot() };
        let filter = r#"labels."containerd.io/snapshot.ref"==sha256:ab,parent=="""#;
        assert!(Filter::parse(filter).expect("one").matches("n", &lowest));
    }

    #[test]
    fn other_text_is_refused() {
        for text in
            ["=", "a=b", "a==", "a==b,", ",", "a b", "\"x", "a~=(", "a==\"\\q\"", "a==\"\\xzz\"", "a.", "1"]
        {
            assert!(Filter::parse(text).is_err(), "{text}");
        }
        assert!(Filter::parse(&"a".repeat(MOST_CHARACTERS + 1)).is_err());
    }
}
