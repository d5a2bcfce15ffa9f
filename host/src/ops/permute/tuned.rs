//! Permutations whose boxes were measured: see [`autotune`](crate::autotune).

use std::sync::Arc;

use super::launch;
use super::plan::{Plan, Request};
use crate::autotune::{self, Measured, Place};
use crate::device::Device;
use crate::error::Result;
use crate::memo::Memo;
use crate::tensor::Tensor;

/// Plans that are measured where choices are. The costs of the first few are so close that the planner's order among them is a guess.
pub const MOST_TRIED: usize = 12;

/// The plan that was, or now is, measured to be the fastest to make y of x, whose dimensions are in y's order; nothing where choices
/// are not measured.
pub fn tuned(request: &Request, x: &Tensor, y: &Tensor) -> Result<Option<Arc<Plan>>> {
    static PLANS: Memo<(Place, Request), Arc<Plan>> = Memo::new();
    let device = y.device();
    if !autotune::is_enabled() || !device.is_cuda() {
        return Ok(None);
    }
    let problem = (autotune::place(device), request.clone());
    if let Some(plan) = PLANS.get(&problem) {
        return Ok(Some(plan));
    }
    let candidates = Plan::sweep(request.clone(), MOST_TRIED);
    let on = |device: &Device| {
        let here = |tensor: &Tensor| tensor.adopted(device, "permute", "operand");
        let (x, y) = (here(x)?, here(y)?);
        Ok(move |plan: &Plan| launch::run(plan, &x, &y))
    };
    let best = autotune::fastest(device, &key(request), candidates, Plan::to_string, on)?.map(Arc::new);
    if let Some(plan) = &best {
        PLANS.keep(problem, plan.clone());
    }
    Ok(best)
}

/// The plan that was measured, and what it took.
pub fn known(request: &Request, device: &Device) -> Option<(Plan, Measured)> {
    let measured = autotune::known(device, &key(request))?;
    let mut plans = Plan::sweep(request.clone(), MOST_TRIED).into_iter();
    Some((plans.find(|plan| plan.to_string() == measured.choice)?, measured))
}

/// What a choice depends on, in a line.
fn key(request: &Request) -> String {
    let Request { shape, strides, from, to, x_phase, y_phase } = request;
    format!("permutation to {shape:?} from strides {strides:?}, {from} to {to}, phases {x_phase}, {y_phase}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn plans_that_are_tried_have_names_of_their_own() {
        for (shape, strides) in [
            (vec![1024, 2048], vec![1, 1024]),
            (vec![45, 65, 24, 61, 15], vec![1, 2745, 2_676_375, 45, 178_425]),
            (vec![64, 3025, 128], vec![387_200, 1, 3025]),
        ] {
            let request =
                Request { shape, strides, from: DType::F16, to: DType::F16, x_phase: 0, y_phase: 0 };
            let plans = Plan::sweep(request, MOST_TRIED);
            assert!(plans.len() > 1);
            for plan in &plans {
                let alike = plans.iter().filter(|other| other.to_string() == plan.to_string()).count();
                assert_eq!(alike, 1, "{plan}");
            }
        }
    }
}
