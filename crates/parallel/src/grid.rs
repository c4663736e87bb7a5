//! `grid`: nodes × heads. Ranks stand in `nodes` groups of `heads` ranks that follow one another. Between the ranks of a group
//! the group's rows are exchanged for heads ([`Heads`]); between the ranks that have the same heads of different groups, `gather`
//! or `halo` brings the sources. With one group this is `heads` itself, on as many ranks as there are, and nothing else moves.
//!
//! Every rank of a group has the structure of all its rows, collected once.

use std::rc::Rc;

use graphweft_model::GraphOps;
use graphweft_tensor::{Error, Matrix, Result};

use crate::gather::Gather;
use crate::halo::Halo;
use crate::heads::Heads;
use crate::layout::Layout;
use crate::link::Link;
use crate::local::Local;
use crate::member::SETUP;
use crate::strategy::Inside;

/// This rank's operations; `shape` is groups × ranks of a group.
pub(crate) fn new(
    (nodes, heads): (usize, usize),
    inside: Inside,
    layout: &Layout,
    link: &Link,
    edge_features: Option<Matrix>,
) -> Result<Rc<dyn GraphOps>> {
    if nodes.checked_mul(heads) != Some(link.size()) {
        let problem = format!("a grid of {nodes} × {heads} is not for {} ranks", link.size());
        return Err(Error::Argument { op: "strategy", problem });
    }
    let (group, place) = (link.rank() / heads, link.rank() % heads);
    let across = link.split(&(group * heads..(group + 1) * heads).collect::<Vec<_>>())?;
    let (joined, edges) = layout.joined(&across, SETUP)?;
    let features = edge_features.map(|own| across.all_gather(SETUP, &own, &edges)?.wait_one()).transpose()?;
    let inner: Rc<dyn GraphOps> = if nodes == 1 {
        Rc::new(Local::renumbered(link.device(), &joined, features)?)
    } else {
        let along = link.split(&(0..nodes).map(|group| group * heads + place).collect::<Vec<_>>())?;
        match inside {
            Inside::Gather => Rc::new(Gather::new(&joined, &along, features)?),
            Inside::Halo(cover) => Rc::new(Halo::new(&joined, &along, features, cover)?),
        }
    };
    let rows = layout.counts()[group * heads..(group + 1) * heads].into();
    Ok(Rc::new(Heads::new(layout, link, across, (rows, edges.into()), inner)))
}
