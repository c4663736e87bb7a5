use super::*;
use crate::clocked::log::Log;
use crate::clocked::network::Wire;

/// 3 seconds of latency, 10 bytes a second.
const SLOW: Network = Network { ranks_per_node: 1, inside: None, between: Wire { latency: 3.0, bandwidth: 10.0 } };

fn post(exchange: u64, sends: &[(usize, usize)], receives: &[(usize, usize)]) -> Event<f64> {
    let transfers =
        |list: &[(usize, usize)]| list.iter().map(|&(peer, bytes)| Transfer { peer, group: 0, bytes }).collect();
    Event::Post { exchange, sends: transfers(sends), receives: transfers(receives) }
}

fn wait(exchange: u64) -> Event<f64> {
    Event::Wait { exchange }
}

fn times(logs: &[Log<f64>]) -> Vec<Times> {
    replay(logs, &SLOW, |_, seconds| *seconds).unwrap()
}

fn ends(logs: &[Log<f64>]) -> Vec<f64> {
    times(logs).iter().map(|t| t.end).collect()
}

#[test]
fn a_message_takes_its_bytes_and_then_the_latency() {
    let sender = vec![Event::Compute(7.0), post(0, &[(1, 20)], &[]), wait(0)];
    let receiver = vec![Event::Compute(1.0), post(0, &[], &[(0, 20)]), wait(0)];
    let found = times(&[sender, receiver]);
    assert_eq!(found[0], Times { end: 9.0, computing: 7.0, waiting: 2.0 }, "until it has left");
    assert_eq!(found[1], Times { end: 12.0, computing: 1.0, waiting: 11.0 }, "until it is there");
}

#[test]
fn what_arrived_while_a_rank_computed_costs_it_nothing() {
    let sender = vec![post(0, &[(1, 20)], &[]), wait(0)];
    let receiver = vec![post(0, &[], &[(0, 20)]), Event::Compute(5.0), wait(0), Event::Compute(1.0)];
    assert_eq!(times(&[sender.clone(), receiver])[1], Times { end: 6.0, computing: 6.0, waiting: 0.0 });
    // Posted late, it is there already.
    let late = vec![Event::Compute(50.0), post(0, &[], &[(0, 20)]), wait(0)];
    assert_eq!(ends(&[sender, late]), [2.0, 50.0]);
}

#[test]
fn all_to_all_takes_one_message_after_another() {
    for ranks in [2, 3, 8] {
        let log = |rank: usize| {
            let others: Vec<(usize, usize)> = (1..ranks).map(|step| ((rank + step) % ranks, 40)).collect();
            vec![post(0, &others, &others), wait(0)]
        };
        let logs: Vec<Log<f64>> = (0..ranks).map(log).collect();
        assert_eq!(ends(&logs), vec![4.0 * (ranks - 1) as f64 + 3.0; ranks], "{ranks} ranks");
    }
}

#[test]
fn everyone_to_one_takes_turns_in_the_order_of_time_then_of_ranks() {
    let send = |start: f64| vec![Event::Compute(start), post(0, &[(0, 10)], &[]), wait(0)];
    let receiver = vec![post(0, &[], &[(1, 10), (2, 10), (3, 10)]), wait(0)];
    assert_eq!(ends(&[receiver.clone(), send(0.0), send(0.0), send(0.0)]), [6.0, 1.0, 2.0, 3.0]);
    assert_eq!(ends(&[receiver, send(0.5), send(0.25), send(0.0)]), [6.0, 3.0, 2.0, 1.0]);
}

#[test]
fn a_ring_hides_messages_behind_computing_of_the_step_before() {
    let (ranks, steps) = (4, 3);
    // Every step: send on, receive, compute on what came before. A message takes 2 + 3 seconds.
    let ring = |compute: f64| -> Vec<Log<f64>> {
        let log = |rank: usize| {
            let (next, last) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            let step = |k: u64| [post(k, &[(next, 20)], &[(last, 20)]), Event::Compute(compute), wait(k)];
            (0..steps).flat_map(step).collect()
        };
        (0..ranks).map(log).collect()
    };
    assert_eq!(ends(&ring(6.0)), vec![18.0; ranks], "messages are hidden");
    assert_eq!(ends(&ring(1.0)), vec![15.0; ranks], "computing is hidden");
}

#[test]
fn groups_share_the_ports_and_have_lines_of_their_own() {
    let transfer = |peer, group, bytes| Transfer { peer, group, bytes };
    let send =
        |exchange, group, bytes| Event::Post { exchange, sends: vec![transfer(1, group, bytes)], receives: vec![] };
    let receive =
        |exchange, group, bytes| Event::Post { exchange, sends: vec![], receives: vec![transfer(0, group, bytes)] };
    let sender = vec![send(0, 5, 100), send(1, 6, 10), wait(0), wait(1)];
    // The second group's message is asked for first and comes second.
    let receiver = vec![receive(0, 6, 10), receive(1, 5, 100), wait(1), Event::Compute(0.25), wait(0)];
    assert_eq!(ends(&[sender, receiver]), [11.0, 14.0]);
}

#[test]
fn a_node_has_wires_of_its_own() {
    let fast = Wire { latency: 0.5, bandwidth: 20.0 };
    let network = Network { ranks_per_node: 2, inside: Some(fast), ..SLOW };
    let to = |peer: usize| vec![post(0, &[(peer, 20)], &[]), wait(0)];
    let from = |peer: usize| vec![post(0, &[], &[(peer, 20)]), wait(0)];
    let end = |logs: &[Log<f64>], rank: usize| replay(logs, &network, |_, s| *s).unwrap()[rank].end;
    assert_eq!(end(&[to(1), from(0), vec![]], 1), 1.5);
    assert_eq!(end(&[to(2), vec![], from(0)], 2), 5.0);
}

#[test]
fn ranks_of_a_node_share_its_port() {
    let fast = Wire { latency: 0.5, bandwidth: 20.0 };
    let network = Network { ranks_per_node: 2, inside: Some(fast), ..SLOW };
    let to = |peers: &[usize]| vec![post(0, &peers.iter().map(|p| (*p, 20)).collect::<Vec<_>>(), &[]), wait(0)];
    let from = |peers: &[usize]| vec![post(0, &[], &peers.iter().map(|p| (*p, 20)).collect::<Vec<_>>()), wait(0)];
    let ends = |logs: &[Log<f64>]| {
        replay(logs, &network, |_, s| *s).unwrap().iter().map(|times| times.end).collect::<Vec<f64>>()
    };
    // Two ranks of one node send at once to two ranks of another: one waits for the other.
    assert_eq!(ends(&[to(&[2]), to(&[3]), from(&[0]), from(&[1])]), [2.0, 4.0, 5.0, 7.0]);
    // Out of different nodes, into the port of one.
    let three = ends(&[from(&[2, 4]), vec![], to(&[0]), vec![], to(&[0])]);
    assert_eq!((three[0], three[2], three[4]), (7.0, 2.0, 4.0));
    // What stays inside does not wait for what leaves.
    assert_eq!(ends(&[to(&[2, 1]), from(&[0]), from(&[0])]), [2.0, 1.5, 5.0]);
}

#[test]
fn a_log_that_cannot_be_is_refused() {
    for logs in [
        [vec![post(0, &[], &[(1, 4)]), wait(0)], vec![]],
        [vec![wait(0)], vec![]],
        [vec![post(0, &[(7, 4)], &[(7, 4)]), wait(0)], vec![]],
    ] {
        let e = replay(&logs, &SLOW, |_, s| *s).unwrap_err().to_string();
        assert!(e.contains("rank 0"), "{e}");
    }
}
