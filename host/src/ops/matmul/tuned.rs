//! Products whose kernel was measured: see [`autotune`](crate::autotune).

use super::epilogue::Beside;
use super::launch::{Behind, phase, run_by_plan};
use super::plan::{Plan, Wanted};
use super::problem::Problem;
use super::request::{Request, Target};
use crate::autotune::{self, Place};
use crate::device::Device;
use crate::error::Result;
use crate::memo::Memo;
use crate::tensor::Tensor;

/// Kernels and splits that are tried.
const MOST_TRIED: usize = 10;

/// The plan that was measured, if it was.
pub fn known(problem: &Problem, request: &Request, target: Target) -> Option<Plan> {
    if problem.wanted.is_some() {
        return None;
    }
    let choice = autotune::known(problem.y.device(), &key(problem, request))?.choice;
    let plan = Plan::likely(request, target, MOST_TRIED).into_iter().find(|plan| name(plan) == choice)?;
    Some(Plan { measured: true, ..plan })
}

/// The problem with the kernel that was, or now is, measured to be the fastest; nothing where choices are not measured, or the
/// caller made one.
pub fn tuned(
    problem: &Problem,
    a: &Tensor,
    b: &Tensor,
    behind: &Behind,
    y: &Tensor,
) -> Result<Option<Problem>> {
    static WANTED: Memo<(Place, String), Wanted> = Memo::new();
    let device = y.device();
    if problem.wanted.is_some() || !autotune::is_enabled() || !device.is_cuda() {
        return Ok(None);
    }
    let beside = Beside::given([behind.bias, behind.addend, behind.aux], y);
    let request = problem.request([a, b].map(phase), beside)?;
    let by = &|wanted: Wanted| Problem { wanted: Some(wanted), ..problem.clone() };
    let known = (autotune::place(device), key(problem, &request));
    if let Some(wanted) = WANTED.get(&known) {
        return Ok(Some(by(wanted)));
    }
    let plans = Plan::likely(&request, Target::of(device), MOST_TRIED);
    let on = |device: &Device| {
        let here = |tensor: &Tensor| tensor.adopted(device, problem.op, "operand");
        let (a, b, y) = (here(a)?, here(b)?, here(y)?);
        let bias = behind.bias.map(here).transpose()?;
        let addend = behind.addend.map(here).transpose()?;
        let aux = behind.aux.map(here).transpose()?;
        Ok(move |plan: &Plan| {
            let behind = Behind { bias: bias.as_ref(), addend: addend.as_ref(), aux: aux.as_ref() };
            // No other is to be measured in its place.
            run_by_plan(&by(Wanted::exactly(plan)), &a, &b, &behind, &y, false)
        })
    };
    let best = autotune::fastest(device, &known.1, plans, name, on)?.map(|plan| Wanted::exactly(&plan));
    if let Some(wanted) = best {
        WANTED.keep(known, wanted);
    }
    Ok(best.map(by))
}

/// What a choice depends on, in a line.
fn key(problem: &Problem, request: &Request) -> String {
    // All of them, so that none is forgotten; GELU, what is read beside and what is simple follow from the epilogue, and columns from the extents.
    let Request {
        m,
        n,
        k,
        batch,
        dtype,
        tf32,
        sides,
        begins,
        mappable,
        neighbours,
        boxed,
        in_turn,
        beside: _,
        gelu: _,
        simple: _,
        by_columns: _,
    } = *request;
    let side = |i: usize| match (sides[i].along_k, sides[i].copied) {
        (true, false) => "k",
        (false, false) => "rows",
        (true, true) => "k copied",
        (false, true) => "rows copied",
    };
    let epilogue = &problem.epilogue;
    let facts = [
        (tf32, "tf32"),
        (mappable[0], "a mappable"),
        (mappable[1], "b mappable"),
        (neighbours, "neighbours"),
        (boxed, "boxed"),
        (in_turn, "in turn"),
        (problem.addend.is_some(), "addend"),
        (epilogue.slope, "slope"),
        (problem.heads.is_some(), "heads"),
    ];
    let facts: String = facts.iter().filter(|(is, _)| *is).map(|(_, fact)| format!(", {fact}")).collect();
    format!(
        "product {batch} times {m}x{n}x{k} {dtype} to {}, a along {} by {}, b along {} by {}, activation {}{facts}",
        problem.y.dtype(),
        side(0),
        begins[0],
        side(1),
        begins[1],
        epilogue.activation,
    )
}

fn name(plan: &Plan) -> String {
    let copies: String = plan
        .named_sides()
        .into_iter()
        .filter(|(_, side)| side.copied)
        .map(|(name, _)| format!(", {name} copied"))
        .collect();
    format!("{:?}, {} parts of k{copies}", plan.choice, plan.splits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Matmul;
    use crate::{DType, Desc, Device};

    fn problem(extents: [usize; 3], parameters: &Matmul<Desc>) -> Problem {
        let [m, n, k] = extents;
        let device = Device::cpu();
        let desc = |shape: &[usize]| Desc::new(&device, DType::BF16, shape).unwrap();
        super::super::problem("matmul", &desc(&[m, k]), &desc(&[k, n]), parameters).unwrap()
    }

    #[test]
    fn what_is_tried_begins_with_the_models_choice_and_is_told_apart() {
        for extents in [[64, 1024, 1024], [3072, 4096, 1024], [16, 16, 8192], [300, 1000, 1001], [1, 1, 1]] {
            let problem = problem(extents, &Matmul::default());
            let (request, target) = (problem.request_of_lines().unwrap(), Target::of(problem.y.device()));
            let plans = Plan::likely(&request, target, MOST_TRIED);
            assert_eq!(plans[0], Plan::new(&request, target, None), "{extents:?}");
            assert!(plans.len() <= MOST_TRIED);
            for plan in &plans {
                assert_eq!(Plan::new(&request, target, Some(Wanted::exactly(plan))), *plan, "{extents:?}");
                assert_eq!(plans.iter().filter(|other| name(other) == name(plan)).count(), 1, "{extents:?}");
            }
        }
        let (whole, target) = (problem([64, 1024, 1024], &Matmul::default()), Target::of(&Device::cpu()));
        assert!(Plan::likely(&whole.request_of_lines().unwrap(), target, MOST_TRIED).len() > 3);
    }

    #[test]
    fn problems_that_may_want_other_kernels_have_other_keys() {
        let of = |extents, parameters: &Matmul<Desc>, phases| {
            let problem = problem(extents, parameters);
            key(&problem, &problem.request(phases, Beside::of(&problem)).unwrap())
        };
        let plain = Matmul::default();
        let first = of([64, 64, 64], &plain, [0; 2]);
        let c = Desc::new(&Device::cpu(), DType::BF16, &[64, 64]).unwrap();
        let others = [
            of([64, 64, 65], &plain, [0; 2]),
            of([64, 64, 64], &plain, [2, 0]),
            of([64, 64, 64], &Matmul { transpose_b: true, ..plain }, [0; 2]),
            of([64, 64, 64], &Matmul { out: Some(DType::F32), ..plain }, [0; 2]),
            of([64, 64, 64], &Matmul { c: Some(&c), ..plain }, [0; 2]),
        ];
        for (i, other) in others.iter().enumerate() {
            assert!(first != *other && !others[..i].contains(other), "{other}");
        }
        assert_eq!(first, of([64, 64, 64], &Matmul { alpha: 2.0, ..plain }, [0; 2]));
    }
}
