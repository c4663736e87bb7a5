//! How wide what people read may be, and text that is broken between words to fit.

use std::os::fd::AsFd;

use terminal_size::{Width, terminal_size_of};

/// Where nobody says how wide the terminal is, and the least that tables are made for.
pub(crate) const USUAL: usize = 80;
/// Longer lines are hard to read.
const MOST: usize = 120;

/// Columns for the result.
pub(crate) fn of_stdout() -> usize {
    said().or_else(|| columns(std::io::stdout())).unwrap_or(USUAL).clamp(USUAL, MOST)
}

/// Columns for notes and errors; nothing where no terminal shows them, as in a log, whose lines are searched and not
/// read.
pub(super) fn of_stderr() -> Option<usize> {
    said().or_else(|| columns(std::io::stderr())).map(|columns| columns.clamp(USUAL, MOST))
}

fn columns(of: impl AsFd) -> Option<usize> {
    terminal_size_of(of).map(|(Width(columns), _)| usize::from(columns))
}

/// What `COLUMNS` says.
fn said() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.trim().parse().ok().filter(|columns| *columns > 0)
}

/// `text` with line breaks between words where a line is longer than `width`. What goes on is set in as far as the line
/// itself, or as what follows the name that it begins with. A word that is too long for a line has one for itself.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| one(line, width)).collect();
    lines.join("\n")
}

fn one(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_string();
    }
    let (first, rest) = line.split_at(hanging(line));
    let indent = first.chars().count();
    let (mut out, mut column) = (first.to_string(), indent);
    for word in words(rest) {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

/// Bytes of a line before its text: spaces, or a name and two spaces or more.
fn hanging(line: &str) -> usize {
    /// Names are shorter.
    const LONGEST: usize = 20;
    let spaces = line.len() - line.trim_start_matches(' ').len();
    if spaces > 0 {
        return spaces;
    }
    let gap = line.find("  ").filter(|at| *at <= LONGEST);
    gap.map_or(0, |at| at + line[at..].len() - line[at..].trim_start_matches(' ').len())
}

/// Words of a line; the groups of a long number are one.
fn words(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(' ') {
        let (before, after) = (&text[start..at], &text[at + 1..]);
        let group = after.len() >= 3 && after.bytes().take(3).all(|b| b.is_ascii_digit());
        let number = before.ends_with(|c: char| c.is_ascii_digit()) && before.len() < 16;
        if !(group && number) {
            all.push(before);
            start = at + 1;
        }
    }
    all.push(&text[start..]);
    all.retain(|word| !word.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_numbers_are_kept() {
        let text = "plan    halo on 2 ranks: rows go where they are needed, 1 234 567 of them, and nowhere else";
        let out = wrapped(text, 40);
        assert_eq!(
            out,
            "plan    halo on 2 ranks: rows go where\n        they are needed, 1 234 567 of\n        them, and nowhere else"
        );
        assert_eq!(wrapped("  a bb ccc\nshort", 6), "  a bb\n  ccc\nshort");
        assert_eq!(wrapped("see /a/very/long/path now", 8), "see\n/a/very/long/path\nnow");
        assert_eq!(wrapped("α β γ δ", 7), "α β γ δ", "letters are counted, not bytes");
    }
}
