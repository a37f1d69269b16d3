//! Just enough of Rust's grammar to tell code from comments and literals.

/// The same text with comments, string literals and character literals replaced by spaces. Line
/// breaks stay, so line numbers and nesting of braces can be read from the result.
pub(crate) fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// The parts of lines that are comments, with the numbers of their lines from 1.
pub(crate) fn comment_lines(text: &str) -> Vec<(usize, String)> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let end = literal_end(&chars, at).max(at + 1);
        let part: String = chars[at..end].iter().collect();
        if part.starts_with("//") || part.starts_with("/*") {
            lines.extend(part.lines().enumerate().map(|(index, text)| (line + index, text.to_owned())));
        }
        line += part.matches('\n').count();
        at = end;
    }
    lines
}

/// Where the comment or literal that begins at `at` ends; `at` itself if none begins there.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => line_comment_end(chars, at),
        '/' if next == Some('*') => block_comment_end(chars, at),
        '"' => string_end(chars, at + 1),
        'r' if !follows_word(chars, at) => raw_string_end(chars, at).unwrap_or(at),
        // b"…" and c"…" need no case of their own: their prefix stays as code.
        'b' | 'c' if next == Some('r') && !follows_word(chars, at) => {
            raw_string_end(chars, at + 1).unwrap_or(at)
        }
        '\'' => char_end(chars, at).unwrap_or(at),
        _ => at,
    }
}

fn follows_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn line_comment_end(chars: &[char], at: usize) -> usize {
    (at..chars.len()).find(|i| chars[*i] == '\n').unwrap_or(chars.len())
}

/// Rust's block comments nest.
fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                i += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `r"…"`, `r#"…"#` and so on, with `at` on the `r`; `None` if it is a plain word or `r#name`.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |i: usize| {
        chars[i] == '"' && chars[i + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    Some((open + 1..chars.len()).find(|i| closes(*i)).map_or(chars.len(), |i| i + 1 + hashes))
}

/// `'x'` and `'\n'`; `None` for the tick of a lifetime or a label.
fn char_end(chars: &[char], at: usize) -> Option<usize> {
    match chars.get(at + 1)? {
        '\\' => (at + 3..chars.len()).find(|i| chars[*i] == '\'').map(|i| i + 1),
        _ => (chars.get(at + 2) == Some(&'\'')).then_some(at + 3),
    }
}

/// True if `word` stands at `index` of `code` as a whole word.
pub(crate) fn is_word_at(code: &str, index: usize, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code[index..].starts_with(word)
        && !code[..index].chars().next_back().is_some_and(is_name)
        && !code[index + word.len()..].chars().next().is_some_and(is_name)
}

/// Line number, from 1, of a byte position.
pub(crate) fn line_of(text: &str, index: usize) -> usize {
    text[..index].matches('\n').count() + 1
}

/// Byte position just after the brace that closes the one at `open`, or the end of the text.
pub(crate) fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (i, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return open + i + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_is_kept() {
        for (text, code) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ \n d */ e", "a              \n      e"),
            (r#"f("x \" }", y)"#, "f(        , y)"),
            ("r#\"} \" \"# z", "          z"),
            ("br\"}\" z", "      z"),
            ("'{' 'a: '\\'' x", "    'a:      x"),
            ("let r#type = r;", "let r#type = r;"),
        ] {
            assert_eq!(blank(text), code, "from {text}");
        }
    }

    #[test]
    fn comments_are_told_from_code_and_literals() {
        let text = "a // b\n\"// c\n\" /* d\n e */ '/' //! f\n";
        let found: Vec<(usize, String)> = comment_lines(text);
        let expected = [(1, "// b"), (3, "/* d"), (4, " e */"), (4, "//! f")];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn text_that_ends_inside_a_literal_does_not_panic() {
        for text in ["\"abc", "/* a", "r#\"a\"", "'\\", "\"\\", "'", "r", "br#"] {
            assert_eq!(blank(text).chars().count(), text.chars().count());
        }
    }

    #[test]
    fn braces_are_matched_over_nesting() {
        let code = "fn f() { if a { b } c } d";
        assert_eq!(&code[closing_brace(code, 7)..], " d");
    }

    #[test]
    fn words_are_whole() {
        assert!(is_word_at("a Instant b", 2, "Instant"));
        assert!(!is_word_at("an Instants", 3, "Instant"));
        assert!(!is_word_at("MyInstant", 2, "Instant"));
    }
}
