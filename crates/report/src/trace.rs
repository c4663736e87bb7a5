//! A Chrome trace, packed: names once, times as differences. Tens of thousands of events are some hundred kilobytes.

use std::collections::HashMap;

use serde_json::{Value, json};

/// How much of a trace goes into a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Rows.
    pub(crate) events: usize,
    /// Bytes of the file that are read at all.
    pub(crate) bytes: u64,
}

impl Room {
    /// As many as a run of one seed writes phases, exchanges and waits: 20,000 each.
    pub(crate) const ALL: Self = Self { events: 60_000, bytes: u64::MAX };
    /// Of a page that is made every few seconds.
    pub(crate) const SO_FAR: Self = Self { events: 8_000, bytes: 2 << 20 };
}

/// The whole events at the beginning of a file that was read in part.
pub(crate) fn beginning(text: &str) -> String {
    let whole = text.rfind(",\n").map_or("[", |end| &text[..end]);
    format!("{whole}\n]\n")
}

/// Columns of the events: kind, rank, name, start since the event before, duration, epoch and, of exchanges, bytes,
/// what they carry (a name) and for which layer. Of more than `most`, those of the first epochs: of each epoch what all
/// ranks did, or nothing, unless the first one has more.
pub(crate) fn pack(text: &str, most: usize) -> Result<Value, String> {
    let events: Vec<Value> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let mut names = Names::default();
    let mut rows = rows(&events, &mut names);
    let all = rows.len();
    rows.sort_by_key(|row| (row[EPOCH], row[START]));
    if let Some(cut) = rows.get(most).map(|row| row[EPOCH]) {
        let whole = rows.partition_point(|row| row[EPOCH] < cut);
        rows.truncate(if whole > 0 { whole } else { most });
    }
    let left_out = all - rows.len();
    rows.sort_by_key(|row| (row[START], row[1], row[0]));
    let origin = rows.first().map_or(0, |row| row[START]);
    let mut before = origin;
    for row in &mut rows {
        let start = row[START];
        row[START] = start - before;
        before = start;
    }
    let column = |place: usize| rows.iter().map(|row| row[place]).collect::<Vec<u64>>();
    let keys = ["kind", "rank", "name", "after", "took", "epoch", "sent", "received", "carries", "layer"];
    let columns: serde_json::Map<String, Value> =
        keys.iter().enumerate().map(|(place, key)| ((*key).to_string(), column(place).into())).collect();
    Ok(json!({"origin": origin, "names": names.all, "events": columns, "left_out": left_out}))
}

/// Places of columns.
const START: usize = 3;
const EPOCH: usize = 5;

/// A row for each phase, wait and exchange.
fn rows(events: &[Value], names: &mut Names) -> Vec<[u64; 10]> {
    let mut rows: Vec<[u64; 10]> = Vec::new();
    let mut open: HashMap<u64, usize> = HashMap::new();
    for event in events {
        let number = |key: &str| event[key].as_u64().unwrap_or(0);
        let argument = |key: &str| event["args"][key].as_u64().unwrap_or(0);
        let mut named = |text: &Value, otherwise: &str| names.place(text.as_str().unwrap_or(otherwise));
        let (rank, start, epoch) = (number("tid"), number("ts"), argument("epoch"));
        match (event["cat"].as_str(), event["ph"].as_str()) {
            (Some("train"), Some("X")) => {
                rows.push([0, rank, named(&event["name"], "?"), start, number("dur"), epoch, 0, 0, 0, 0]);
            }
            (Some("wait"), Some("X")) => {
                rows.push([1, rank, named(&event["name"], "?"), start, number("dur"), epoch, 0, 0, 0, 0]);
            }
            (Some("exchange"), Some("b")) => {
                open.insert(number("id"), rows.len());
                let (name, carries) = (named(&event["name"], "?"), named(&event["args"]["carries"], ""));
                let [sent, received, layer] = ["sent", "received", "layer"].map(argument);
                rows.push([2, rank, name, start, 0, epoch, sent, received, carries, layer]);
            }
            (Some("exchange"), Some("e")) => {
                if let Some(row) = open.remove(&number("id")).and_then(|place| rows.get_mut(place)) {
                    row[4] = start.saturating_sub(row[START]);
                }
            }
            _ => {}
        }
    }
    rows
}

/// Each name once.
#[derive(Default)]
struct Names {
    all: Vec<String>,
    places: HashMap<String, u64>,
}

impl Names {
    fn place(&mut self, name: &str) -> u64 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.all.len() as u64;
        self.all.push(name.to_string());
        self.places.insert(name.to_string(), place);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_packed_in_the_order_of_time() {
        let text = r#"[
            {"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"rank 0"}},
            {"name":"forward","cat":"train","ph":"X","pid":0,"tid":1,"ts":150,"dur":30,"args":{"epoch":1}},
            {"name":"attend","cat":"exchange","ph":"b","id":1,"pid":0,"tid":0,"ts":120,
             "args":{"epoch":1,"carries":"rows","layer":2,"sent":8,"received":16}},
            {"name":"attend","cat":"exchange","ph":"e","id":1,"pid":0,"tid":0,"ts":145,"args":{}}
        ]"#;
        let packed = pack(text, Room::ALL.events).unwrap();
        assert_eq!(packed["origin"], 120);
        let events = &packed["events"];
        assert_eq!(events["after"], json!([0, 30]));
        assert_eq!(events["took"], json!([25, 30]));
        assert_eq!(events["kind"], json!([2, 0]));
        assert_eq!(events["received"], json!([16, 0]));
        assert_eq!(
            (&packed["names"][2], &events["carries"][0], &events["layer"]),
            (&json!("rows"), &json!(2), &json!([2, 0]))
        );
    }

    #[test]
    fn of_too_many_events_whole_epochs_of_all_ranks_stay() {
        let of = |rank: u64, epoch: u64| {
            let ts = 100 * epoch + rank;
            json!({"name": "forward", "cat": "train", "ph": "X", "tid": rank, "ts": ts, "dur": 9, "args": {"epoch": epoch}})
        };
        // Rank by rank, as a run that has collected some epochs writes them.
        let events: Vec<Value> = (0..3).flat_map(|rank| (1..=4).map(move |epoch| of(rank, epoch))).collect();
        let packed = pack(&Value::from(events).to_string(), 8).unwrap();
        assert_eq!(packed["events"]["epoch"], json!([1, 1, 1, 2, 2, 2]));
        assert_eq!(packed["events"]["rank"], json!([0, 1, 2, 0, 1, 2]));
        assert_eq!(packed["left_out"], 6);
    }

    #[test]
    fn a_part_of_a_file_has_the_events_that_are_whole() {
        let text = "[\n{\"a\":1},\n{\"b\":\"x,\\n\"},\n{\"c\":3}\n]\n";
        let whole = |end: usize| serde_json::from_str::<Vec<Value>>(&beginning(&text[..end])).unwrap().len();
        let found: Vec<usize> = [1, 5, 11, 12, 20, 25, 26, 33].into_iter().map(whole).collect();
        assert_eq!(found, [0, 0, 1, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn what_is_no_trace_is_an_error() {
        assert!(pack("[{", 9).is_err());
    }
}
