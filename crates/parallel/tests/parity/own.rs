//! A strategy that the crate does not know: it attends as `gather` does and aggregates as a ring.

use std::rc::Rc;

use graphweft_model::{Aggregation, Attend, EdgeWeight, GraphOps, Membership};
use graphweft_parallel::{Rows, Situation, Spread, Strategy, settings, spread};
use graphweft_tensor::{Result, Tape, Var};

/// The strategy: nothing but its name and what it is made of.
#[derive(Debug)]
struct Mixed;

impl Spread for Mixed {
    fn family(&self) -> &'static str {
        "mixed"
    }

    fn ops(&self, rows: Rows<'_>) -> Result<Rc<dyn GraphOps>> {
        let Rows { layout, link, edge_features } = rows;
        let attending = spread(&settings::Gather.into(), layout, link, edge_features.clone())?;
        let aggregating = spread(&settings::Ring { depth: 1 }.into(), layout, link, edge_features)?;
        Ok(Rc::new(MixedOps { attending, aggregating }))
    }

    fn reason(&self, _: &Situation) -> String {
        "it was asked for".into()
    }
}

struct MixedOps {
    attending: Rc<dyn GraphOps>,
    aggregating: Rc<dyn GraphOps>,
}

impl GraphOps for MixedOps {
    fn member(&self) -> &dyn Membership {
        self.attending.member()
    }

    fn attend(&self, tape: &mut Tape, layer: u32, a: Attend<'_>) -> Result<Var> {
        self.attending.attend(tape, layer, a)
    }

    fn aggregate(&self, tape: &mut Tape, layer: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        self.aggregating.aggregate(tape, layer, x, how, weight)
    }
}

/// The same for all ranks.
pub(crate) fn mixed() -> Strategy {
    static MIXED: Mixed = Mixed;
    Strategy::own(&MIXED)
}

#[test]
fn a_strategy_from_outside_says_what_it_is() {
    assert_eq!((mixed().to_string().as_str(), mixed().family(), mixed().is_exact()), ("mixed", "mixed", true));
    assert_eq!(mixed(), mixed());
    assert_ne!(mixed(), settings::Gather.into());
    assert!("mixed".parse::<Strategy>().is_err(), "its name is not in the table");
}
