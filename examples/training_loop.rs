//! A training loop of one's own: forward, loss, backward and step by hand.

#![allow(clippy::print_stdout)]

use graphweft::{Dataset, Result, Run};

fn main() -> Result<()> {
    let data = Dataset::generate("sbm:300:3:8:f=8", 0)?;
    let mut steps = Run::new(&data).model("gcn").set("train.optimizer", "adam").steps()?;

    // The loss of the task, with a learning rate of our own.
    for epoch in 1..=20 {
        let pass = steps.forward(epoch)?;
        let loss = steps.backward(pass)?;
        steps.step(0.05 / epoch as f64)?;
        if epoch % 5 == 0 {
            let scores = steps.evaluate()?;
            println!("epoch {epoch}: loss {loss:.4}, valid {}", steps.metric().show(scores.valid));
        }
    }

    // A loss of our own: outputs should be small. Its gradient is all that is needed.
    let pass = steps.forward(21)?;
    let outputs = pass.outputs()?;
    let mean_of_squares = outputs.iter().map(|x| x * x).sum::<f32>() / outputs.len() as f32;
    let gradients: Vec<f32> = outputs.iter().map(|x| 2.0 * x / outputs.len() as f32).collect();
    steps.backward_with(pass, &gradients)?;
    println!("squares {mean_of_squares:.3}, gradient of length {:.3}", steps.gradient_norm()?);
    steps.step(0.01)
}
